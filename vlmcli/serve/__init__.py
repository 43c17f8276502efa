"""`vlmcli serve`: our engine behind OpenAI's chat completions API.

Three threads of life: uvicorn's event loop takes requests (`app`), one thread of our own has the
engine and the page workers (`backend`), and parsing goes to a helper thread. Needs the extra
`serve`; importing this package alone does no work and needs nothing.
"""
