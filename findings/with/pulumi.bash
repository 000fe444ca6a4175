# Sourced in an empty folder: Pulumi's Python SDK in venv, the CLI on PATH, stacks in the folder, and stacks.py for programs.
export PULUMI_HOME=$PWD/home PULUMI_BACKEND_URL=file://$PWD PULUMI_CONFIG_PASSPHRASE=none PULUMI_SKIP_UPDATE_CHECK=1
export PYTHONPATH=$PWD TMPDIR=$PWD/tmp
mkdir tmp

python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-compile pulumi==3.272.0

# The CLI of this machine if it has this version, else from its Go module: a minute if it was built before, else many.
cli=3.274.1
if [ "$(pulumi version 2> /dev/null)" != "v$cli" ]; then
    mkdir cli
    cat > cli/go.mod <<END
module findings/cli

go 1.26.6

require (
	github.com/pulumi/pulumi/pkg/v3 v$cli
	github.com/pulumi/pulumi/sdk/v3 v$cli
)

replace github.com/atotto/clipboard => github.com/tgummerer/clipboard v0.0.0-20241001131231-d02d263e614e
END
    echo "building the Pulumi CLI $cli" >&2
    version="-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v$cli"
    (cd cli && GOFLAGS=-mod=mod go build -trimpath -buildvcs=false -ldflags "-s -w $version" \
        -o ../bin/pulumi github.com/pulumi/pulumi/pkg/v3/cmd/pulumi)
    export PATH=$PWD/bin:$PATH
fi

cat > stacks.py <<'END'
from pulumi import automation


def stack(program, name="dev"):
    """Return a stack of the program, which runs in this process."""
    workspace = automation.LocalWorkspaceOptions(pulumi_command=automation.PulumiCommand(skip_version_check=True))
    return automation.create_or_select_stack(name, project_name="findings", program=program, opts=workspace)


def up(program, name="dev", **options):
    """Deploy; return whether it succeeded, and the lines that the CLI printed."""
    lines = []
    try:
        stack(program, name).up(on_output=lines.append, color="never", **options)
    except (automation.CommandError, automation.InlineSourceRuntimeError):
        return "failed", lines
    return "succeeded", lines


def exports(name="dev"):
    """Return what `pulumi stack output` answers."""
    return {key: output.value for key, output in stack(lambda: None, name).outputs().items()}
END
