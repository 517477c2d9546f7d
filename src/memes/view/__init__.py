"""Runs to look at: in the browser, live, and their elites as videos, sheets of frames and paths.

follow      a run folder that is read again and again
runs        all that a page is about
layout      the archive as tiles, and which pixel shows which
colours     what tiles show, and the picture
words       what is said of a run, of an elite and of the lanes
curves      columns of `metrics.csv` as lines
elites      which elite
episodes    what the run's own simulator makes of it
drawings    an elite as a robot that moves, as lines or as a picture
cameras     where a robot is seen from
film        pictures one after the other, as a file
portraits   pictures of an elite, for a film
growth      the film of a run, as its archive fills
pictures    videos and contact sheets, without a window
server      a page for its user alone
browser     the page and its loop
board       its archive, which can be clicked on
panel       its controls
theatre     the elites that are chosen
stage       where one of them moves
"""
