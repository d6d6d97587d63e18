"""A template's own form of tool calls: derived from the template, and read from a model's text.

Read in this order: `form` (what a call looks like, derived by rendering marked calls), `reading` (text to
calls, strict or tolerant). Both are pure: no model, no file, no state.
"""
