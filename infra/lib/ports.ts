/** Where the tasks listen. */
export const PORTS = { admin: 8080, monitor: 8081, transport: 8082 } as const;
