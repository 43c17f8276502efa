"""For every test: no deadlines, since a busy machine is no reason to fail."""

from hypothesis import settings

settings.register_profile("vlmcli", deadline=None)
settings.load_profile("vlmcli")
