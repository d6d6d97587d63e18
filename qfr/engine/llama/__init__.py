"""llama.cpp in process, bit by bit reproducible.

Read `engine` (one episode at a time, forks byte-equal), `model`, `sequences` and `settings` over `api`
(llama.cpp's own calls), `path` and `tokens` (what has been evaluated), `template` and `transcript` (a
conversation as the GGUF's template renders it), `streams` (several tasks at a time), `exactness` (whether
forks are exact here).
"""
