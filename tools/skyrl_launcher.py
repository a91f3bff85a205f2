"""Serves SkyRL's Tinker API on a socket that is open already; runs in an environment with skyrl.

    python tools/skyrl_launcher.py DESCRIPTOR OPTION…

Its own command starts its engine with ``uv run``, and listens at all addresses: here the engine is
started with this Python, and the socket is of whoever opened it.
"""

import argparse
import socket
import sys

import uvicorn
from skyrl.tinker import api
from skyrl.tinker.config import EngineConfig, add_model, config_to_argv


def main(descriptor: int, options: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    given = vars(parser.parse_args(options))
    api.app.state.engine_config = EngineConfig.model_validate(given)
    api._build_uv_run_cmd_engine = lambda _, config: [
        *(sys.executable, "-m", "skyrl.tinker.engine"),
        *config_to_argv(config),
    ]
    server = uvicorn.Server(uvicorn.Config(api.app, log_level="warning"))
    server.run(sockets=[socket.socket(fileno=descriptor)])


main(int(sys.argv[1]), sys.argv[2:])
