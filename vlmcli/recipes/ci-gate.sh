#!/bin/sh
# Reads documents and fails where they are read worse than they may be. For continuous integration.
#
#   ci-gate.sh DOCUMENTS TRUTH [MAX_CER]
#
# DOCUMENTS  a file or folder to read
# TRUTH      what they say: a text file with form feeds between pages, JSON Lines, or a folder of
#            them; or text-layer, where the documents have text of their own
# MAX_CER    the character error rate that is still good enough, 0.05 if not given
#
# Exit codes are vlmcli's: 6 if memory is too small (nothing was loaded), 5 if a page failed or the
# error rate is above MAX_CER. VLMCLI_MAX_MEMORY=4GiB and other variables count here too.
set -eu

documents=$1
truth=$2
max_cer=${3:-0.05}
report=${CI_GATE_REPORT:-ci-gate}     # the folder that gets what to look at afterwards
mkdir -p "$report"

# 1. Will it fit? Tells before anything is rendered or loaded, and costs next to nothing.
vlmcli plan --recipe ci-gate "$documents"

# 2. Read. A page that fails makes this exit code 5, and the script ends here.
vlmcli ocr --recipe ci-gate --overwrite --stats "$report/stats.json" \
  -o "$report/read.jsonl" "$documents"

# 3. Compare. The worst pages stand beside their truth in worst.html.
if [ "$truth" = text-layer ]; then
  set -- --truth text-layer "$report/read.jsonl"
else
  set -- "$report/read.jsonl" "$truth"
fi
vlmcli eval --max-cer "$max_cer" --overwrite --html "$report/worst.html" "$@"
