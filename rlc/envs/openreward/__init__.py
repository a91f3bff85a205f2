"""Environments of OpenReward."""
