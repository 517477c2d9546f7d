"""The controls of the page.

User actions are put into a queue, which the loop of the page reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from memes.analysis.render import STEPS
from memes.view import curves

WIDTH = 400  # width of the controls in pixels
SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")
NOTHING = "Click a cell, or press an arrow key, to show its elite next to the archive."
KEYS = "click: show · shift-click: compare · arrow keys: walk through the archive · space: pause"


class Panel:
    """The controls of the page, which put user actions (name, value, client) into the queue `events`."""

    def __init__(self, gui: Any) -> None:
        self.events: SimpleQueue[tuple[str, Any, Any]] = SimpleQueue()
        self._gui = gui
        gui.main_panel.dock_right()
        gui.main_panel.set_width(WIDTH)
        self.run = self._choice("run", ["-"])
        self.about = gui.add_markdown("")
        tabs = gui.add_tab_group()
        with tabs.add_tab("archive"):
            self.by = self._choice("colour by", ["fitness"])
            self.features = self._choice("features", ["-"])
            self.generation = gui.add_slider("generation", min=0, max=1, step=1, initial_value=1)
            self.follow = gui.add_checkbox("follow the run", initial_value=True)
            self.lately = gui.add_checkbox("highlight recent changes", initial_value=True)
            for control in (self.generation, self.follow, self.lately):
                self._tell(control, control.label)
            with gui.add_folder("elite"):
                self.elite = gui.add_markdown(NOTHING)
                self.start = gui.add_slider("random start", min=0, max=31, step=1, initial_value=0)
                self._tell(self.start, "random start")
                self.playing = gui.add_checkbox("play", initial_value=True)
                self.speed = gui.add_dropdown("speed", SPEEDS, initial_value="1")
                self.clock = gui.add_slider("time (s)", min=0.0, max=1.0, step=0.01, initial_value=0.0)
                self.command = gui.add_markdown("")
                self._genotype, self._video, self._alone = map(
                    self._button, ("save genotype", "save video", "stop comparing")
                )
            self.keys = gui.add_markdown(KEYS)
        with tabs.add_tab("curves"):
            self.across = self._choice("over", curves.ACROSS)
            self.columns = []
            for name in curves.FIRST:
                chosen = self._choice("column", [name])
                chart = gui.add_uplot(
                    (np.array([0.0, 1.0]), np.array([np.nan, np.nan])),
                    curves.series(["-"], "generation"),
                    scales={"x": {"time": False}},
                    axes=(curves.AXIS, curves.AXIS | {"size": 78}),
                    aspect=1.7,
                )
                self.columns.append((chosen, chart))
        with tabs.add_tab("lanes"):
            self.lanes = gui.add_markdown("")
        for name in STEPS:
            self._key(f"walk {name}", f"arrow{name}", ("walk", name))
        self._key("pause or play", "space", ("pause", None))

    def offer(self, control: Any, options: Sequence[str]) -> None:
        """Set the options of a menu, and keep the selected option if it still exists."""
        if tuple(control.options) != tuple(options):
            value = control.value
            control.options = tuple(options)
            control.value = value if value in options else options[0]

    def fit(
        self,
        *,
        chosen: bool = False,
        moves: bool = False,
        robot: bool = False,
        uncertain: bool = False,
        compares: bool = False,
    ) -> None:
        """Show only the controls that apply to the chosen elites.

        Args:
            chosen: Whether an elite is chosen, so that its genotype can be saved.
            moves: Whether a chosen elite moves.
            robot: Whether a chosen elite is a robot, so that its video can be saved.
            uncertain: Whether the task of a chosen elite is uncertain.
            compares: Whether two elites are compared.
        """
        for control in (self.playing, self.speed, self.clock):
            control.visible = moves
        self._genotype.visible, self._video.visible = chosen, robot
        self.start.visible, self._alone.visible = uncertain, compares

    def draw(self, names: Sequence[str], runs: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Show the metrics of runs as curves."""
        for control, chart in self.columns:
            self.offer(control, curves.columns(runs))
            lines = curves.series(names, self.across.value)
            if tuple(chart.series) != lines:
                chart.series = lines
            chart.data = curves.table(runs, control.value, self.across.value)

    def _choice(self, label: str, options: Sequence[str]) -> Any:
        control = self._gui.add_dropdown(label, tuple(options), initial_value=options[0])
        self._tell(control, label)
        return control

    def _tell(self, control: Any, name: str) -> None:
        def told(event: Any) -> None:
            # If the page itself has set the value, the event has no client.
            if event.client is not None:
                self.events.put((name, control.value, event.client))

        control.on_update(told)

    def _button(self, label: str) -> Any:
        button = self._gui.add_button(label)
        button.on_click(lambda event: self.events.put((label, None, event.client)))
        return button

    def _key(self, label: str, key: str, event: tuple[str, Any]) -> None:
        command = self._gui.add_command(label, hotkey=key)
        command.on_trigger(lambda found: self.events.put((*event, found.client)))
