import numpy as np


def scaled(total_R, group_R):
    spread_R = np.array([total_R[group_R == group].std() for group in group_R])
    with np.errstate(all="ignore"):
        return (total_R - total_R.mean()) / spread_R


def per_group(total_R, group_R):
    return [total_R[group_R == group].mean() for group in np.unique(group_R)]


def rewarded(episodes):
    return [episode.reward > 0.5 for episode in episodes]


def hard(solved_T):
    return 1.0 - solved_T
