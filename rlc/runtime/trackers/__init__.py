"""Where metrics and episodes are sent: ``tracking`` has the log of metrics with the experiment
trackers of a stage, ``uploads`` the tracker that sends episodes to OpenReward.
"""
