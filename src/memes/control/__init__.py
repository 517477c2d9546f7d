"""Control tasks: environments, controllers, and tasks whose genotypes are controllers."""

from typing import TYPE_CHECKING, Any

from memes.control.policies import mlp
from memes.control.rollouts import Control, Controller, Environment, Episodes, rollout
from memes.control.tree_policies import tree_policy

if TYPE_CHECKING:
    from memes.control.control_task import control_task

__all__ = ["Control", "Controller", "Environment", "Episodes"]
__all__ += ["control_task", "mlp", "rollout", "tree_policy"]


def __getattr__(name: str) -> Any:
    # Importing `control_task` above would be circular, because `memes.task` imports this package.
    if name == "control_task":
        from memes.control.control_task import control_task

        globals()[name] = control_task
        return control_task
    raise AttributeError(f"module 'memes.control' has no attribute '{name}'")
