package object

import "github.com/pulumi/pulumi/sdk/v3/go/common/resource"

// MarkSecrets marks in outs what is secret in ins, and the data of a
// Kubernetes Secret in any case. Maps are compared key by key; in a list one
// secret makes the whole list secret, since elements may have moved.
func MarkSecrets(outs, ins resource.PropertyMap) {
	if kind := outs["kind"]; kind.IsString() && kind.StringValue() == "Secret" {
		for _, key := range []resource.PropertyKey{"data", "stringData"} {
			if value, found := outs[key]; found && !value.IsSecret() {
				outs[key] = resource.MakeSecret(value)
			}
		}
	}
	for key, in := range ins {
		out, found := outs[key]
		switch {
		case !found || out.IsSecret() || !in.ContainsSecrets():
		case out.IsObject() && in.IsObject():
			MarkSecrets(out.ObjectValue(), in.ObjectValue())
		default:
			outs[key] = resource.MakeSecret(out)
		}
	}
}
