"""A simulator that computes the same physics as MuJoCo, for thousands of copies of one model.

Example:
    engine = physics.compile("robot.xml", substeps=5)
    state = engine.init(qpos, qvel)          # [N, nq], [N, nv]
    state = engine.step(state, ctrl)         # [N, nu]
    engine.qpos(state), engine.contacts(state)
"""

from memes.errors import package, show_mujoco_warnings

package("mujoco", "robots", "simulating a robot")  # MuJoCo compiles the models
show_mujoco_warnings()

from memes.physics.engine import Engine as Engine  # noqa: E402
from memes.physics.engine import RobotState as RobotState  # noqa: E402
from memes.physics.engine import compile as compile  # noqa: E402
from memes.physics.reading import load as load  # noqa: E402
from memes.physics.reading import read as read  # noqa: E402
from memes.physics.solver import Fidelity as Fidelity  # noqa: E402
