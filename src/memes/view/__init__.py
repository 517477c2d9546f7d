"""Runs to look at: in the browser, live, and their elites as videos, sheets of frames and paths.

follow          a run folder that is read again and again
runs            all runs of a page
colours         what the cells of the archive show, and in which colours
labels          texts about a run, an elite and the lanes
curves          columns of `metrics.csv` as lines
elites          the choice of an elite
recordings      its episodes in the simulator of the run
drawings        an elite as a robot that moves, as lines or as a picture
cameras         where a robot is seen from
video_formats   a sequence of pictures as a file
elite_frames    pictures of an elite, for a video
archive_video   the video of a run, as its archive fills
pictures        videos and contact sheets of a robot, without a window
server          a page for its user alone
browser         the page and its loop
archive_panel   the archive on the page, which can be clicked on
panel           the controls of the page
player          the chosen elites
scene           a place where one of them moves
geoms           the shapes of robots as meshes
"""
