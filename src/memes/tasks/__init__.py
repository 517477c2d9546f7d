"""The tasks that come with the library, and how to name one on the command line."""

from memes.tasks.arm import arm as arm
