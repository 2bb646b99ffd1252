"""The `mainApplicationFile` of a driver pod. What it does stands in `sinkpipeline.cli.pod.command`."""

from sinkpipeline.cli.pod.command import main

if __name__ == "__main__":
    main()
