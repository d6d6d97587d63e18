"""From a command line to a finished sweep: what the user typed, composed by Hydra and checked.

Read `main` (the entry), `hydra_app` (hands over to Hydra), `arguments` and `spelling` (the words of the
command line), `compose` and `schema` (Hydra's configuration to `CellConfig`), then `sweep`, which calls
the other rooms: plan (`qfr.grid`), register (`qfr.registration`), play (`qfr.play`), close
(`qfr.closing`). `messages` puts Hydra's errors in plain words; `load`, `launching` and `shared_store`
deal with the launcher's workers.
"""
