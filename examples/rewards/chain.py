import asyncio
import json
import sys
from pathlib import Path

JUDGE = Path(__file__).with_name("chain_judge.py")
AT_ONCE = asyncio.Semaphore(4)


async def judged(messages, row):
    """What another program says of the whole conversation; a model behind HTTP is asked as well."""
    async with AT_ONCE:
        judge = await asyncio.create_subprocess_exec(
            sys.executable, JUDGE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        answer, _ = await judge.communicate(json.dumps(messages).encode())
    return float(answer)
