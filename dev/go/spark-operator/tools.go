//go:build tools

// Package tools names what dev/install.sh builds, so that go.mod pins it.
package tools

import _ "github.com/kubeflow/spark-operator/v2/cmd/operator"
