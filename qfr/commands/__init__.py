"""The back door's commands: one module each, with `add_arguments(parser)` and `run(arguments) -> exit code`."""
