"""Rewards behind HTTP: `python -m mmrl.rewards.server config=configs/reward_server/shapes.yaml`.

    POST /v1/score     scores samples with one reward (`mmrl.rewards.server.wire` has the models)
    GET  /v1/health    what is served, and whether it is loaded

Requests are untrusted data: nothing that they name is opened, images are PNG files whose size is
known before they are decoded, and every amount has a limit.
"""
