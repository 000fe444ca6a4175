"""The table of `judge`: what was read, remembered, requested and observed before, and how the run stands.

Columns: clause of decision 0021, variant, job object, pods, memory, request, previous observation, answer.

Job object: its phase; `-`: it has none yet; `gone`; `unread`: no evidence. `del`: it has a deletionTimestamp.
`again=2`: it was started again twice. `limit=2`: it may be (Volcano: `maxRetry`, with a policy that does so).
`v=9`: its resourceVersion (default 100). `noqueue`: its queue does not exist. `late`: its pods ended a minute ago.
`ok=1 bad=1`: pods that MCAD counts. `changing`: its stack is being changed. `watched`: not confirmed by a read.
Pods: a word for each replica, `!`: it has a deletionTimestamp. `wait`, `run`, `ok` (exit code 0), `bad` (3), `killed`
(137, no time), `-` (no pod), `other` (ended, and of another run), `Evicted`: why it was taken away. `hidden`: they may
not be read.
Memory: `last=`, `whole=` with a phase, `+del`, `+again`; pods that had ended before their deletion.
Answer: state and reason, or `stays`: the previous observation itself, or `none`.
"""

CASES = """
a | volcano | unread | run run |  |  |  | none
a | volcano | unread | run run |  | cancel |  | none
a | volcano | unread | run run |  |  | RUNNING Running | stays
a | pods    | unread | run run |  |  | RUNNING Running | stays
a | v1beta1 | unread | ok ok |  | cancel | RUNNING Running | stays
a | v1beta2 | unread | ok ok |  |  | SUCCEEDED Completed | stays
a | volcano | gone |  |  |  |  | UNKNOWN NotFound
a | volcano | Running | run run |  |  | SUCCEEDED Completed uid=u-0 | RUNNING Running
a | volcano | Running | run run |  |  | RUNNING Running v=120 uid=u-0 | RUNNING Running
a | volcano | Running | run run |  | cancel uid=u-0 |  | RUNNING Running
a | pods    | gone |  |  | cancel uid=u-0 |  | UNKNOWN NotFound
b | v1beta1 | Running | ok ok |  |  |  | SUCCEEDED Completed
b | v1beta1 | Running | ok ok! |  |  |  | RUNNING Restarting
b | v1beta1 | Running | ok ok! | ok ok |  |  | SUCCEEDED Completed
b | v1beta1 | Running | ok killed! |  |  |  | RUNNING Restarting
b | v1beta1 | Running | ok bad! | ok bad |  |  | FAILED ExitCode
b | v1beta1 | Running | ok bad! | ok |  |  | RUNNING Restarting
b | v1beta1 | Running | ok ok other |  |  |  | SUCCEEDED Completed
b | pods    | Running | ok ok |  |  |  | SUCCEEDED Completed
b | pods    | Running | ok bad! |  |  |  | RUNNING Stopping
b | pods    | Running | ok bad! | ok bad |  |  | FAILED ExitCode
b | pods    | Running | killed! killed! |  |  |  | RUNNING Stopping
b | pods    | Running | ok run | - ok |  |  | SUCCEEDED Completed
b | volcano | Running | killed! killed! |  |  |  | RUNNING ExitCode
b | v1beta2 | Running | killed! killed! |  |  |  | RUNNING Restarting
c | volcano | - |  |  |  |  | SUBMITTED Submitted
c | volcano | Pending |  |  |  |  | PENDING WaitingForPods
c | volcano | Pending | wait wait |  |  |  | PENDING WaitingForPods
c | volcano | Running | run run |  |  |  | RUNNING Running
c | volcano | Running | bad ok |  |  |  | RUNNING ExitCode
c | volcano | Running | ok ok |  |  |  | RUNNING Running
c | volcano | Restarting | bad! ok |  |  |  | RUNNING Restarting
c | volcano | Aborting | run! run! |  |  |  | RUNNING Stopping
c | volcano | Terminating | run! bad |  |  |  | RUNNING Stopping
c | volcano | Completing | ok run! |  |  |  | RUNNING Stopping
c | volcano | Completed | ok ok |  |  |  | SUCCEEDED Completed
c | volcano | Completed |  |  |  |  | SUCCEEDED Completed
c | volcano | Completed del | ok! ok! |  |  |  | SUCCEEDED Completed
c | volcano | Failed | bad ok |  |  |  | FAILED ExitCode
c | volcano | Failed |  |  |  |  | FAILED Failed
c | volcano | Failed del | bad! - |  |  |  | FAILED ExitCode
c | volcano | Terminated |  |  |  |  | FAILED Failed
c | volcano | Aborted |  |  |  |  | CANCELLED Cancelled
c | volcano | Aborted del |  |  |  |  | CANCELLED Cancelled
c | volcano | Levitating |  |  |  |  | UNKNOWN Unreadable
c | volcano | Running del | run run |  |  |  | RUNNING Stopping
c | volcano | Running del | killed! killed! |  |  |  | RUNNING Stopping
c | volcano | Running del | bad ok | bad ok |  |  | RUNNING Stopping
c | volcano | Pending del |  |  |  |  | PENDING Stopping
c | volcano | gone |  | last=Completed+del |  | RUNNING Running | SUCCEEDED Completed
c | volcano | gone |  | last=Failed |  | RUNNING Running | FAILED Failed
c | volcano | gone |  | last=Aborted |  | RUNNING Running | CANCELLED Cancelled
c | volcano | gone |  | last=Running+del whole=Running bad bad |  | RUNNING Running | UNKNOWN NotFound
c | volcano | Running again=1 | run run |  |  | RUNNING Running | RUNNING Running
c | volcano | - noqueue |  |  |  |  | SUBMITTED QueueMissing
c | volcano | Pending noqueue | wait wait |  |  |  | PENDING QueueMissing
c | volcano | Pending noqueue | run run |  |  |  | RUNNING QueueMissing
c | volcano | Pending noqueue | ok ok |  |  |  | SUCCEEDED Completed
c | volcano | Running noqueue | ok - |  |  |  | RUNNING QueueMissing
c | volcano | Running noqueue | ok ok |  |  | RUNNING Running | SUCCEEDED Completed
c | volcano | Running noqueue | ok ok |  | cancel | RUNNING Running | SUCCEEDED Completed
c | volcano | Running noqueue | ok bad |  |  | RUNNING Running | FAILED ExitCode
c | volcano | Running noqueue | ok bad |  | cancel | RUNNING Running | FAILED ExitCode
c | volcano | Running noqueue | ok ok! |  |  |  | RUNNING QueueMissing
c | volcano | Running noqueue del | ok ok |  |  |  | RUNNING Stopping
c | volcano | Running noqueue limit=2 | ok bad |  |  |  | RUNNING ExitCode
c | volcano | Restarting noqueue again=1 limit=3 |  |  |  |  | RUNNING QueueMissing
c | volcano | Restarting noqueue again=2 limit=2 | ok bad |  |  |  | FAILED RetriesExhausted
c | volcano | Terminated | ok ok |  |  |  | SUCCEEDED Completed
c | volcano | Terminated | ok bad |  |  |  | FAILED ExitCode
c | volcano | Terminated | ok - |  |  |  | FAILED Failed
c | volcano | Terminated | ok ok! |  |  |  | FAILED Failed
c | volcano | Terminated | ok ok |  | cancel |  | SUCCEEDED Completed
c | volcano | Completed noqueue | ok ok |  |  |  | SUCCEEDED Completed
c | volcano | Running late | ok ok |  |  |  | SUCCEEDED Completed
c | volcano | Running late | ok bad |  |  |  | FAILED ExitCode
c | volcano | Running late limit=2 | ok bad |  |  |  | RUNNING ExitCode
c | volcano | Pending late | ok ok |  |  |  | SUCCEEDED Completed
c | volcano | gone late |  | last=Running ok ok |  | RUNNING Running | UNKNOWN NotFound
c | volcano | gone late |  | last=Running bad bad | cancel | RUNNING Running | CANCELLED Cancelled
d | v1beta2 | - |  |  |  |  | SUBMITTED Submitted
d | v1beta2 | Suspended |  |  |  |  | PENDING WaitingForPods
d | v1beta2 | Resuming | wait - |  |  |  | PENDING Starting
d | v1beta2 | Running | run run |  |  |  | RUNNING Running
d | v1beta2 | Running | ok ok |  |  |  | RUNNING Running
d | v1beta2 | Running late | ok ok |  |  |  | SUCCEEDED Completed
d | v1beta2 | Running late | ok ok |  | cancel | RUNNING Cancelled | SUCCEEDED Completed
d | v1beta2 | Running late | ok bad |  |  |  | RUNNING ExitCode
d | v1beta2 | Terminating del late | ok! ok! | last=Terminating+del whole=Running ok ok | cancel |  | RUNNING Cancelled
d | v1beta2 | gone late |  | last=Running ok ok |  | RUNNING Running | UNKNOWN NotFound
d | v1beta2 | gone late |  | last=Running ok ok | cancel | RUNNING Running | CANCELLED Cancelled
d | v1beta2 | gone late |  | last=Running ok ok | cancel | SUCCEEDED Completed | stays
d | v1beta2 | Running del late | ok ok |  |  |  | RUNNING Stopping
d | v1beta2 | Running late | ok ok! |  |  |  | RUNNING Restarting
d | v1beta2 | Running | bad run |  |  |  | RUNNING ExitCode
d | v1beta2 | Resetting | bad! run! |  |  |  | RUNNING Restarting
d | v1beta2 | Suspending | run! run! |  |  |  | RUNNING Stopping
d | v1beta2 | Succeeded | ok ok |  |  |  | SUCCEEDED Completed
d | v1beta2 | Succeeded |  |  |  |  | SUCCEEDED Completed
d | v1beta2 | Failed | bad ok |  |  |  | FAILED ExitCode
d | v1beta2 | Failed | bad! - |  |  |  | FAILED ExitCode
d | v1beta2 | Failed again=2 limit=2 | bad ok |  |  |  | FAILED RetriesExhausted
d | v1beta2 | Succeeded del | ok! ok! |  |  |  | RUNNING Stopping
d | v1beta2 | Failed del | bad! bad! |  |  |  | RUNNING Stopping
d | v1beta2 | Succeeded del | ok! ok! | last=Succeeded+del whole=Succeeded |  |  | SUCCEEDED Completed
d | v1beta2 | Terminating del |  | last=Terminating+del whole=Failed |  | RUNNING Running | FAILED Failed
d | v1beta2 | Terminating del | killed! - |  |  | RUNNING Running | RUNNING Stopping
d | v1beta2 | gone |  | last=Failed+del whole=Running |  | RUNNING Running | UNKNOWN NotFound
d | v1beta2 | gone |  | last=Terminating+del whole=Succeeded |  | RUNNING Running | SUCCEEDED Completed
d | v1beta2 | Suspended |  |  | cancel | RUNNING Running | PENDING Cancelled
d | v1beta2 | Suspended |  |  |  | RUNNING Running v=90 | PENDING WaitingForPods
e | v1beta1 | - |  |  |  |  | SUBMITTED Submitted
e | v1beta1 | Pending |  |  |  |  | PENDING WaitingInQueue
e | v1beta1 | Running | run - |  |  |  | RUNNING Running
e | v1beta1 | Running | bad run |  |  |  | RUNNING ExitCode
e | v1beta1 | Running | ok bad |  |  |  | FAILED ExitCode
e | v1beta1 | Running limit=2 | ok bad |  |  |  | RUNNING Restarting
e | v1beta1 | Running again=2 limit=2 | ok bad |  |  |  | FAILED RetriesExhausted
e | v1beta1 | Running limit=2 | ok ok |  |  |  | SUCCEEDED Completed
e | v1beta1 | Running again=3 limit=2 | run run |  |  |  | FAILED RetriesExhausted
e | v1beta1 | Running | ok - | ok ok |  |  | RUNNING Running
e | v1beta1 | Running | - - | ok bad |  |  | RUNNING Running
e | v1beta1 | Completed | ok ok |  |  |  | SUCCEEDED Completed
e | v1beta1 | Completed ok=2 |  |  |  |  | SUCCEEDED Completed
e | v1beta1 | Completed ok=1 bad=1 |  |  |  |  | FAILED Failed
e | v1beta1 | Completed | ok bad |  |  |  | FAILED ExitCode
e | v1beta1 | Failed | bad ok |  |  |  | FAILED ExitCode
e | v1beta1 | Completed del | ok! ok! |  |  |  | RUNNING Stopping
e | v1beta1 | Completed del | ok! ok! | last=Completed+del whole=Completed |  |  | SUCCEEDED Completed
e | v1beta1 | Deleted |  |  |  |  | FAILED RetriesExhausted
e | v1beta1 | Deleted again=1 limit=1 | bad! ok! |  |  |  | FAILED RetriesExhausted
e | v1beta1 | Deleted del | killed! killed! |  |  | RUNNING Running | UNKNOWN NotFound
e | v1beta1 | Deleted del | killed! killed! |  | cancel | RUNNING Running | CANCELLED Cancelled
e | v1beta1 | Deleted |  |  | cancel | RUNNING Running | CANCELLED Cancelled
e | v1beta1 | Deleted del | ok! bad! | last=Deleted+del whole=Running ok bad |  | RUNNING Running | FAILED ExitCode
e | v1beta1 | Deleted del | ok! bad! | last=Deleted+del whole=Running ok bad | cancel |  | FAILED ExitCode
e | v1beta1 | Running del | killed! run! |  |  |  | RUNNING Stopping
e | v1beta1 | gone |  | last=Deleted+del whole=Running ok ok |  | RUNNING Running | SUCCEEDED Completed
e | v1beta1 | gone |  | last=Deleted+del whole=Running ok |  | RUNNING Running | UNKNOWN NotFound
e | v1beta1 | gone |  | last=Deleted+del+again whole=Running ok ok |  | RUNNING Running | UNKNOWN NotFound
f | pods    | Pending |  |  |  |  | FAILED PodGone
f | pods    | Pending changing | wait - |  |  |  | RUNNING Stopping
f | pods    | Pending | wait wait |  |  |  | PENDING WaitingInQueue
f | pods    | Running | run wait |  |  |  | PENDING WaitingForPods
f | pods    | Running | run run |  |  |  | RUNNING Running
f | pods    | Running | ok run |  |  |  | RUNNING Running
f | pods    | Running | ok bad |  |  |  | FAILED ExitCode
f | pods    | Running | bad run |  |  |  | RUNNING ExitCode
f | pods    | Running | run - |  |  |  | FAILED PodGone
f | pods    | Running members=1 | run - |  |  |  | RUNNING PodGone
f | pods    | Running | Evicted - |  |  |  | FAILED Evicted
f | pods    | Running | NodeLost - |  |  |  | FAILED NodeLost
f | pods    | Running | Preempting - |  |  |  | FAILED Preempted
f | pods    | Running | ok - | ok ok |  |  | SUCCEEDED Completed
f | pods    | Running | run run! |  |  |  | RUNNING Running
f | pods    | Running | run! run! |  |  |  | RUNNING Stopping
f | pods    | Running changing | run - |  |  |  | RUNNING Stopping
f | pods    | Running | run - |  | cancel |  | RUNNING Cancelled
f | pods    | Running del | run - |  |  |  | RUNNING Stopping
f | pods    | Running del | killed! - |  |  |  | RUNNING Stopping
f | pods    | gone |  | last=Running |  | RUNNING Running | UNKNOWN NotFound
f | pods    | gone |  | last=Running ok |  | RUNNING Running | UNKNOWN NotFound
f | pods    | gone |  | last=Running bad | cancel | RUNNING Running | CANCELLED Cancelled
f | pods    | gone |  | last=Running ok bad |  | RUNNING Running | FAILED ExitCode
f | pods    | gone |  | last=Running ok ok | cancel | RUNNING Running | SUCCEEDED Completed
g | volcano | Completed | hidden |  |  | RUNNING Running | SUCCEEDED Completed
g | volcano | Failed del | hidden |  |  | RUNNING Running | FAILED Failed
g | v1beta2 | Failed | hidden |  |  | RUNNING Running | FAILED Failed
g | v1beta1 | Completed | hidden |  |  | RUNNING ExitCode | stays
g | v1beta1 | Completed | hidden |  |  |  | RUNNING Stopping
g | v1beta1 | Running | hidden |  |  | PENDING WaitingInQueue | stays
g | pods    | Running | hidden |  |  | RUNNING Running | stays
g | pods    | Running | hidden |  |  |  | SUBMITTED Submitted
h | volcano | Running | run run |  |  | SUCCEEDED Completed phase=Completed | stays
h | volcano | Failed | bad ok |  |  | SUCCEEDED Completed phase=Completed | stays
h | volcano | Running again=1 | run run |  |  | FAILED ExitCode phase=Failed | RUNNING Running
h | volcano | Running again=1 | run run |  |  | FAILED ExitCode phase=Running | RUNNING Running
h | volcano | Running | ok ok |  |  | SUCCEEDED Completed phase=Running | stays
h | volcano | Completed | ok ok |  |  | UNKNOWN NotFound | SUCCEEDED Completed
h | volcano | Running | run run |  |  | UNKNOWN NotFound | stays
h | pods    | Running | ok ok |  |  | FAILED PodGone | SUCCEEDED Completed
h | pods    | Running | run run |  |  | FAILED PodGone | stays
h | pods    | gone |  |  | cancel | FAILED PodGone | CANCELLED Cancelled
h | volcano | gone |  |  |  | SUCCEEDED Completed phase=Completed | stays
h | volcano | gone |  |  |  | FAILED ExitCode phase=Failed | stays
h | volcano | Pending v=90 |  |  |  | RUNNING Running v=95 | stays
h | volcano | Running v=100 | run run |  |  | PENDING WaitingForPods v=95 | RUNNING Running
h | volcano | Running v=90 | run run |  |  | RUNNING Running attempt=2 v=80 | stays
h | volcano | Failed watched | bad ok |  |  | RUNNING Running attempt=2 | stays
h | volcano | Failed | bad ok |  |  | RUNNING Running attempt=2 | FAILED ExitCode
h | pods    | Running v=90 | run run |  |  | PENDING Starting v=95 | stays
h | volcano | Restarting v=130 |  |  |  | CANCELLED Cancelled phase=Aborted v=120 | RUNNING Restarting
h | volcano | Running v=110 | run run |  |  | CANCELLED Cancelled phase=Aborted v=120 | stays
i | volcano | gone |  |  | cancel | RUNNING Running | CANCELLED Cancelled
i | volcano | gone |  |  |  | RUNNING Running | UNKNOWN NotFound
i | pods    | gone |  |  | cancel | RUNNING Running | CANCELLED Cancelled
i | pods    | gone |  |  |  | RUNNING Running | UNKNOWN NotFound
i | v1beta1 | gone |  |  | cancel | RUNNING Running | CANCELLED Cancelled
i | v1beta1 | gone |  |  |  | RUNNING Running | UNKNOWN NotFound
i | v1beta2 | gone |  |  | cancel | RUNNING Running | CANCELLED Cancelled
i | v1beta2 | gone |  |  |  | RUNNING Running | UNKNOWN NotFound
i | volcano | gone |  |  | cancel | UNKNOWN NotFound | CANCELLED Cancelled
i | volcano | gone |  |  | cancel | SUCCEEDED Completed phase=Completed | stays
i | volcano | Running | run run |  | cancel | RUNNING Running | RUNNING Cancelled
i | volcano | Aborting | run! run! |  | cancel | RUNNING Running | RUNNING Cancelled
i | volcano | Aborted |  |  | cancel | RUNNING Running | CANCELLED Cancelled
i | volcano | Terminated |  |  | cancel | RUNNING Running | CANCELLED Cancelled
i | volcano | Completed | ok ok |  | cancel | RUNNING Running | SUCCEEDED Completed
i | volcano | Failed | bad ok |  | cancel | RUNNING Running | FAILED ExitCode
i | volcano | Failed |  |  | cancel | RUNNING Running | FAILED Failed
i | volcano | Running again=1 | run run |  | cancel | RUNNING Running | RUNNING Running
i | volcano | Aborted v=100 |  |  | resume v=100 | CANCELLED Cancelled phase=Aborted v=100 | PENDING Restarting
i | volcano | Aborting v=130 | run! run! |  | resume v=100 | RUNNING Cancelled v=90 | PENDING Restarting
i | volcano | Aborting v=130 again=1 | run! run! |  | resume v=100 | RUNNING Running v=120 | RUNNING Stopping
i | volcano | Aborted v=130 |  |  | resume v=100 | RUNNING Running v=120 | CANCELLED Cancelled
i | volcano | Running v=120 | run run |  | resume v=100 | CANCELLED Cancelled phase=Aborted v=100 | RUNNING Running
i | volcano | Running | run run |  | resume v=100 |  | RUNNING Running
i | v1beta1 | Running | run run |  | resume v=100 |  | RUNNING Running
i | volcano | gone |  |  | resume v=100 | CANCELLED Cancelled phase=Aborted v=100 | UNKNOWN NotFound
i | volcano | gone |  | last=Aborted | resume v=100 | PENDING Restarting | UNKNOWN NotFound
i | v1beta1 | Running | run run |  | cancel | RUNNING Running | RUNNING Cancelled
i | v1beta1 | Running del | killed! killed! |  | cancel | RUNNING Running | RUNNING Cancelled
i | v1beta1 | Completed | ok ok |  | cancel | RUNNING Running | SUCCEEDED Completed
i | v1beta1 | Completed ok=1 bad=1 |  |  | cancel | RUNNING Running | FAILED Failed
i | v1beta2 | Terminating del | killed! killed! |  | cancel | RUNNING Running | RUNNING Cancelled
i | v1beta2 | Failed | bad - |  | cancel | RUNNING Running | FAILED ExitCode
i | pods    | Running del | killed! killed! |  | cancel | RUNNING Running | RUNNING Cancelled
i | pods    | Running | ok bad |  | cancel | RUNNING Running | FAILED ExitCode
"""
