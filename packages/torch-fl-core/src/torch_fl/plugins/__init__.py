"""Owns: the backends: what they say about themselves, how they are found, which one is used.

A plugin's author needs `spec` alone; the core asks `selection`. Nothing here imports torch.

    spec                 the plugin API: the hooks, with the values that they return from
                         declarations and capabilities
    machine              what the kernel shows of the hardware
    discovery            which plugins are installed
    probing              each of them imported and asked, for itself; time_limit
    hooks, adapting      the hooks of one plugin, also those written for another core; loaded
    choosing, rules      which one fits; selection: which one this process uses
    records, refusals    what is known of each, and the sentences that say it
    host                 the embedded plugin
"""
