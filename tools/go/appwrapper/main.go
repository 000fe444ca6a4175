// As the operator's own main package, but for its webhooks: it has them on a port of every address that cannot be
// chosen, with a certificate that only a pod can mount.
package main

import (
	"flag"
	"os"
	"path/filepath"

	"github.com/project-codeflare/appwrapper/api/v1beta2"
	"github.com/project-codeflare/appwrapper/pkg/config"
	"github.com/project-codeflare/appwrapper/pkg/controller"
	"github.com/project-codeflare/appwrapper/pkg/logger"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func main() {
	health := flag.String("health-address", "", "Where it answers /healthz and /readyz.")
	port := flag.Int("webhook-port", 0, "Port of the webhooks on 127.0.0.1.")
	certificate := flag.String("tls-cert-file", "", "Certificate of the webhooks.")
	key := flag.String("tls-private-key-file", "", "Its private key, in the same folder.")
	options := zap.Options{Development: true}
	options.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(logger.FilteredLogger(zap.New(zap.UseFlagOptions(&options))))

	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	must(v1beta2.AddToScheme(scheme))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: *health,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host:     "127.0.0.1",
			Port:     *port,
			CertDir:  filepath.Dir(*certificate),
			CertName: filepath.Base(*certificate),
			KeyName:  filepath.Base(*key),
		}),
	})
	must(err)
	defaults := config.NewAppWrapperConfig()
	certificatesReady := make(chan struct{})
	close(certificatesReady)
	must(controller.SetupWebhooks(manager, defaults))
	must(controller.SetupControllers(manager, defaults))
	must(controller.SetupProbeEndpoints(manager, certificatesReady))
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "the operator ends")
		os.Exit(1)
	}
}
