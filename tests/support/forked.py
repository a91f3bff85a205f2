"""What each forked run would import and make. It is the last that is preloaded, and so made once
for all of them; a collection in one of them would copy every page that has an object."""

from __future__ import annotations

from freezing import freeze_for_good
from plain_service import table
from run_support import tiny, train
from shared_tls import share_tls_contexts

import rlc.report.measures
import rlc.runtime.rollouts.agents
import rlc.service.inference.routes  # noqa: F401
from rlc.plan.codec import plan_from_dict, plan_to_dict

share_tls_contexts()
table()
plan_from_dict(plan_to_dict(tiny(train())))
freeze_for_good()
