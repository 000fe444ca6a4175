package v1beta1

// QueueAllocationGateKey names the scheduling gate of a feature that is off by default. Volcano 1.15 compiles with it,
// and the module volcano.sh/apis v1.14.0 lacks it; the value is that of Volcano's documentation.
const QueueAllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"
