"""Models behind an OpenAI-compatible server: `engine` over `client`; `fields` says which fields of a request
and an answer are used, `server` what a server says about itself.
"""
