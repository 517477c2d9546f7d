"""Creation of tasks, algorithms and runs from command lines, TOML files and saved runs."""
