"""Outputs: from a job's records, in order, to files, directories and streams.

`plan_outputs` resolves and checks everything before any work; the `RecordSink` of a plan then takes
the records. Knows no documents, no models and no terminals.
"""

from vlmcli.errors import ReaderGoneError
from vlmcli.outputs.sink import RecordSink
from vlmcli.outputs.targets import OutputPlan, plan_outputs

__all__ = ["OutputPlan", "ReaderGoneError", "RecordSink", "plan_outputs"]
