"""Playing elites of a saved run: in the browser, as a video, as a sheet of frames, as paths.

elites      which elite
episodes    what the run's own simulator makes of it
pictures    videos and contact sheets, without a window
browser     a player on this machine
server      the page that it is on, for its user alone
"""
