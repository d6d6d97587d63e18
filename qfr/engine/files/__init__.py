"""GGUF files: `header` reads one, `gguf` says what qfr needs of it, `parts` joins split files, `resolve`
finds the file of a configuration (`hub` downloads it, `quantize` derives a preset, `imatrix` measures
what that needs), `digests` remembers SHA-256, `memory` and `vram` say what it takes to load, `compare`
what differs between two.
"""
