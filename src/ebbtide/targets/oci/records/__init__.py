"""What Ebbtide keeps of registries: policies, what people assigned, who may, who did, notifications."""
