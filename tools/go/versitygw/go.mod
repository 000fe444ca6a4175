// An S3 server over a folder, for tests of object stores.
module torchx-pulumi/tools/go/versitygw

go 1.25.0

require github.com/versity/versitygw v1.8.0
