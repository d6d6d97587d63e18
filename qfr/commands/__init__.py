"""The back door's commands, one module each: `add_arguments(parser)` and `run(arguments) -> exit code`.
Those of one subject share a room: `decisions`, `transfer`, `checks`.
"""
