"""Why this machine cannot: facts from its files, from CUDA and from NVML, and what each of them means."""
