"""For every test: no deadlines (a busy machine is no fault), and Ctrl-C as on a terminal.

A suite that was started in the background of a shell script inherits SIGINT ignored, and so would
every command that it starts.
"""

import os
import signal

from hypothesis import settings

# A pinned CI run judges the change, not the luck of the draw; everybody else's runs explore.
settings.register_profile("vlmcli", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("vlmcli")
signal.signal(signal.SIGINT, signal.default_int_handler)
