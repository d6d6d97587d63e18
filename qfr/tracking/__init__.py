"""The MLflow store: `store` opens it (`address`, `database`, `environment`, `filesystem`, `moved`, `outage`),
`writing/` puts cells and sweeps into it, `reading/` finds them again.
"""
