"""Arguments of `MCADTrainingJob` that are its own, resolved, to the options that the planner takes."""

from __future__ import annotations

from torchx_pulumi.inputs.run_options import ELSEWHERE
from torchx_pulumi.model.options import RESERVED_CPU_MILLI, RESERVED_MEMORY_MB, AppWrapperApi, MCADOptions, PodGroupApi

from torchx_pulumi_components import mcad_args as shapes
from torchx_pulumi_components.arg_values import Fields
from torchx_pulumi_components.args import WaitFor
from torchx_pulumi_components.read_args import UNKNOWN_RESERVED, ArgsReader, or_else


def _mcad_options(fields: Fields) -> MCADOptions:
    suspend = fields.flag("suspend")
    if suspend and fields.choice("wait_for", WaitFor, WaitFor.CREATED.value) != WaitFor.CREATED.value:
        fields.problem("wait_for", "must be created, or unset, with suspend: a suspended job comes no further")
    return MCADOptions(
        namespace=fields.text("namespace") or "default",
        service_account=fields.text("service_account"),
        priority=fields.integer("priority"),
        priority_class_name=fields.text("priority_class"),
        image_secret=fields.text("image_secret"),
        coscheduler_name=fields.text("coscheduler_name", plain=True),
        network=fields.text("network"),
        pod_group_api=PodGroupApi(fields.choice("pod_group_api", shapes.PodGroupVersion, PodGroupApi.X_K8S.value)),
        api_version=AppWrapperApi(fields.choice("api_version", shapes.AppWrapperVersion, AppWrapperApi.V1BETA1.value)),
        local_queue=fields.text("local_queue"),
        suspend=suspend,
        requeuing_time_s=fields.integer("requeuing_time_s"),
        requeuing_max_time_s=fields.integer("requeuing_max_time_s"),
        requeuing_growth=fields.text("requeuing_growth", plain=True),
        reserved_millicpu=or_else(fields.integer("reserved_millicpu", unknown=UNKNOWN_RESERVED), RESERVED_CPU_MILLI),
        reserved_memmb=or_else(fields.integer("reserved_memmb", unknown=UNKNOWN_RESERVED), RESERVED_MEMORY_MB),
        efa_device_count=fields.integer("efa_device_count"),
        labels=fields.text_map("labels"),
        annotations=fields.text_map("annotations"),
    )


MCAD = ArgsReader(
    shape=shapes.MCADTrainingJobArgs,
    read_options=_mcad_options,
    elsewhere=ELSEWHERE["mcad"],
    discovered=frozenset({"pod_group_api"}),
)
"""Arguments of `MCADTrainingJob`."""
