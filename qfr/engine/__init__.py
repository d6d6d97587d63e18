"""Models that answer: one interface (`base`), and what stands behind it.

`llama/` is llama.cpp in process; `openai/` a served model; `scripted` a known skill without a model.
`worker` plays an engine in a process of its own (`worker_main`, `child`), `tree` counts the tokens that
were evaluated, `native/` reads the tool calls that a template writes, `files/` is about GGUF files.
"""
