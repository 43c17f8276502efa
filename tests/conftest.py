"""For every test: no deadlines (a busy machine is no fault), and Ctrl-C as on a terminal.

A suite that was started in the background of a shell script inherits SIGINT ignored, and so would
every command that it starts.
"""

import signal

from hypothesis import settings

settings.register_profile("vlmcli", deadline=None)
settings.load_profile("vlmcli")
signal.signal(signal.SIGINT, signal.default_int_handler)
