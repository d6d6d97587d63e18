"""Commands that carry runs in and out: `export`, `import_` (`archives`, `neutral`), `sync`."""
