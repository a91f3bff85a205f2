"""A process that answers lines: with their doubles, too late, or not at all."""

import json
import os
import sys
import time

print("ready", flush=True)
for line in sys.stdin:
    question = json.loads(line)
    if question == "hang":
        time.sleep(600)
    if question == "die":
        os._exit(1)
    print(json.dumps([question, question]), flush=True)
