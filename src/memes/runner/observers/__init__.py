"""The observers that come with the library; see `base` for how to write one."""

from memes.runner.observers.base import Moment as Moment
from memes.runner.observers.base import Observer as Observer
from memes.runner.observers.base import Stage as Stage
from memes.runner.observers.base import Watch as Watch
from memes.runner.observers.checkpoints import Checkpoints as Checkpoints
from memes.runner.observers.corrections import Corrections as Corrections
from memes.runner.observers.log import Log as Log
from memes.runner.observers.progress import Progress as Progress
from memes.runner.observers.track import Track as Track
