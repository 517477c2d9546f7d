"""Functions that run algorithms: the main loop, device calls, observers and progress."""
