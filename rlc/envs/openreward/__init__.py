"""Environments of OpenReward: ``openreward("GeneralReasoning/WhoDunIt")``."""
