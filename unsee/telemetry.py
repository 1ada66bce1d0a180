"""Switches that keep the libraries below unsee from reporting their use over the network."""

from __future__ import annotations

import os

# Each is read once, by native code or when its library is first imported: there is no later call that does the same
# (ONNX Runtime's `disable_telemetry_events` comes after its first events are queued).
SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime >= 1.29: device id, event queue, look-ups of a Microsoft host
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub and transformers: library versions with each download
    "RAY_USAGE_STATS_ENABLED": "0",  # ray: usage of a cluster
    "MLFLOW_DISABLE_TELEMETRY": "true",  # mlflow >= 3.2: which of its functions are called
    "WANDB_ERROR_REPORTING": "false",  # wandb: its own crashes, beside the runs that it is asked to send
}


def switch_off() -> None:
    """Sets every switch that the environment does not set already: a choice made there is kept."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
