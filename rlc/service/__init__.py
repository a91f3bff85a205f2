"""Training services behind one client interface, Tinker's.

Read ``interface`` first. ``hosted/`` is Tinker through its SDK, and finds the service of a plan;
``engine/`` the embedded engine, ``server/`` that engine behind Tinker's protocol, and
``inference/`` models behind OpenAI's and Anthropic's; ``bridge/`` is a server of SkyRL behind
Tinker's; ``conform/`` checks any server, and
``tiny/`` is the model that is included.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.service.bridge.app import *
    from rlc.service.chats.forms import *
    from rlc.service.chats.model import *
    from rlc.service.chats.prompts import *
    from rlc.service.chats.replies import *
    from rlc.service.conform.probe import *
    from rlc.service.conform.suite import *
    from rlc.service.engine.checkpoints import *
    from rlc.service.engine.service import *
    from rlc.service.gradients import *
    from rlc.service.hosted.billing import *
    from rlc.service.hosted.clients import *
    from rlc.service.hosted.connect import *
    from rlc.service.hosted.endpoint import *
    from rlc.service.hosted.refusals import *
    from rlc.service.hosted.sdk import *
    from rlc.service.hosted.service import *
    from rlc.service.hosted.sharing import *
    from rlc.service.hosted.stored import *
    from rlc.service.http import *
    from rlc.service.inference.endpoint import *
    from rlc.service.inference.routes import *
    from rlc.service.interface import *
    from rlc.service.server.app import *
    from rlc.service.server.backend import *
    from rlc.service.server.faults import *
    from rlc.service.sockets import *
    from rlc.service.usage import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        bridge.app: build_bridge
        chats.forms: BegunReply
        chats.model: ChatModel Generation OnToken ReplyRequest SampledReply sampled_tokens
        chats.prompts: FormError Message Tool UNRENDERED
        chats.replies: TextDecoder
        conform.probe: Bench Check CheckOutcome ConformReport TOLERANCE
        conform.suite: MOST_TOKENS chosen run_checks
        engine.checkpoints: CheckpointStore peft_arrays peft_config peft_key peft_scale
        engine.service: find_folder
        gradients: Conversation Findings Fresh OptimStep Pass Request Sample Snapshot
            find_ruler gradient_sums loss_gradient older_sampler step_sizes trained_logprobs
        hosted.billing: account_usage session_link usage_in_file
        hosted.connect: connect_service open_service require_packages require_service
            require_states smaller_contexts
        hosted.clients: Patience
        hosted.endpoint: Endpoint KEY find_endpoint
        hosted.refusals: reported_to translate
        hosted.sdk: open_rest
        hosted.sharing: SharedSampler SharedSamplers share_sampler shares_samplers
        hosted.service: find_base offered_models require_reachable
        hosted.stored: StoredCheckpoint delete_stored stored_checkpoints
        http: RefusedRequest Server TOO_LONG key_checker on_a_thread require_key require_local_host
            serving
        inference.endpoint: Caller Observer Recorder parts_of
        inference.routes: endpoint_app
        interface: CheckpointError LossHandle RemoteService SampledToken SamplingClient
            SamplingRequest ServiceClient ServiceError ServiceLostError SessionEnd
            TrainingClient UndeletableError asking calls_of pending_call sampling_params
        server.app: build_app
        server.backend: Backend load_models
        server.faults: Disturbances Latency parse_delay parse_faults
        sockets: LOOPBACK bind is_local_host
        usage: AccountUsage BilledUsage StoredCheckpoints
        """,
    )
