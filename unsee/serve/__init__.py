"""The model as a service: a black box over HTTP, with keys, budgets and limits. `docs/serve.md` says how to run it."""
