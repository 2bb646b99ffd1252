"""The driver as it runs in a Spark pod: configured by the operator, asked over HTTP, heard after its end."""
