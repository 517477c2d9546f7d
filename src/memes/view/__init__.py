"""Views of runs: a live page in the browser, videos of runs, and videos and pictures of elites.

follow          polling of a run folder for changes
runs            the runs that a page shows
colours         values and colours of the cells of the archive
labels          text about a run, an elite and the lanes
curves          columns of `metrics.csv` as lines
elites          selection of an elite
recordings      episodes of an elite in the simulator of the run
drawings        drawings of an elite as a moving robot, as lines or as a picture
cameras         cameras for robots
video_formats   functions that write pictures as a video file
elite_frames    pictures of an elite, for a video
archive_video   video of a run that shows how its archive fills up
pictures        videos and contact sheets of a robot, rendered without a window
server          local web server for the page, for one user
browser         browser page, and the loop that updates it
archive_panel   clickable image of the archive on the page
panel           controls of the page
player          playback of the selected elites
scene           part of the page that shows one moving elite
geoms           shapes of robots as meshes
"""
