"""From words to objects: names of tasks and algorithms, options, scales, files, and saved runs."""
