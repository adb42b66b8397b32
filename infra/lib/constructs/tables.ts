import { RemovalPolicy } from "aws-cdk-lib";
import * as dynamodb from "aws-cdk-lib/aws-dynamodb";
import { Construct } from "constructs";
import { SynthRefused } from "../checks/fault.ts";
import { checkTableNames } from "../checks/index.ts";
import definitions from "../generated/tables.json" with { type: "json" };
import type { TableRole } from "../operations.ts";

/** Every role, in the order of the definitions. */
export const TABLE_ROLES: readonly TableRole[] = definitions.tables.map((table) => table.role as TableRole);

/** The names that tables have unless told otherwise: `causeway-leases` and so on; with a prefix, `<prefix>-leases`. */
export function defaultTableNames(prefix = "causeway"): Record<TableRole, string> {
  const named = definitions.tables.map((table) => [table.role, table.default_name.replace(/^causeway/, prefix)]);
  return Object.fromEntries(named) as Record<TableRole, string>;
}

/** The bridge's tables, whether made here or elsewhere. */
export interface IBridgeTables {
  /** Every table by its role. */
  readonly tables: Readonly<Record<TableRole, dynamodb.ITable>>;
  /** Every table's literal name by its role. */
  readonly tableNames: Readonly<Record<TableRole, string>>;
}

/** Props of {@link BridgeTables}. */
export interface BridgeTablesProps {
  /**
   * Literal names of the tables, by role. They must be what the configuration says in `stores.*.options.table_name`.
   *
   * @default - `causeway-<role>` for each role that is left out
   */
  readonly tableNames?: Partial<Record<TableRole, string>>;

  /**
   * Tables that exist already and are used instead of new ones. Their names are still given by `tableNames`. Their keys must be those of
   * `lib/generated/tables.json`; a worker checks that when it starts and refuses a leases or outbox table with a time to live.
   *
   * @default - every table is created
   */
  readonly existing?: Partial<Record<TableRole, dynamodb.ITable>>;
}

/**
 * The tables that hold what must not be lost: on demand, with point-in-time recovery, deletion protection and retention. Neither can be switched
 * off here. Keys, indexes and time to live come from the program's own definition, so that the two cannot differ.
 */
export class BridgeTables extends Construct implements IBridgeTables {
  public readonly tables: Readonly<Record<TableRole, dynamodb.ITable>>;
  public readonly tableNames: Readonly<Record<TableRole, string>>;
  /** The tables that were made here; without those of `existing`. */
  public readonly created: Readonly<Partial<Record<TableRole, dynamodb.Table>>>;

  /** Tables of another stack or tool, by their literal names, in the account and region of the stack. */
  public static fromTableNames(
    scope: Construct,
    id: string,
    names?: Partial<Record<TableRole, string>>,
  ): IBridgeTables {
    const tableNames = { ...defaultTableNames(), ...names };
    SynthRefused.ifAny(checkTableNames(tableNames));
    const parent = new Construct(scope, id);
    const found = TABLE_ROLES.map((role) => [role, dynamodb.Table.fromTableName(parent, role, tableNames[role])]);
    return { tableNames, tables: Object.fromEntries(found) as Record<TableRole, dynamodb.ITable> };
  }

  public constructor(scope: Construct, id: string, props: BridgeTablesProps = {}) {
    super(scope, id);
    this.tableNames = { ...defaultTableNames(), ...props.tableNames };
    SynthRefused.ifAny(checkTableNames(this.tableNames));
    const created: Partial<Record<TableRole, dynamodb.Table>> = {};
    const tables: Partial<Record<TableRole, dynamodb.ITable>> = { ...props.existing };
    for (const definition of definitions.tables) {
      const role = definition.role as TableRole;
      if (tables[role] !== undefined) continue;
      const table = this.create(definition, this.tableNames[role]);
      created[role] = table;
      tables[role] = table;
    }
    this.created = created;
    this.tables = tables as Record<TableRole, dynamodb.ITable>;
  }

  private create(definition: Definition, tableName: string): dynamodb.Table {
    const table = new dynamodb.Table(this, definition.role, {
      tableName,
      partitionKey: attribute(definition.partition_key),
      sortKey: definition.sort_key ? attribute(definition.sort_key) : undefined,
      billingMode: dynamodb.BillingMode.PAY_PER_REQUEST,
      encryption: dynamodb.TableEncryption.AWS_MANAGED,
      pointInTimeRecoverySpecification: { pointInTimeRecoveryEnabled: true },
      deletionProtection: true,
      removalPolicy: RemovalPolicy.RETAIN,
      timeToLiveAttribute: definition.ttl_attribute ?? undefined,
    });
    for (const index of definition.indexes) {
      table.addGlobalSecondaryIndex({
        indexName: index.name,
        partitionKey: attribute(index.partition_key),
        sortKey: attribute(index.sort_key),
        projectionType: dynamodb.ProjectionType[index.projection as keyof typeof dynamodb.ProjectionType],
        nonKeyAttributes: index.non_key_attributes.length > 0 ? index.non_key_attributes : undefined,
      });
    }
    return table;
  }
}

type Definition = (typeof definitions.tables)[number];

function attribute(key: { name: string; type: string }): dynamodb.Attribute {
  return { name: key.name, type: key.type === "N" ? dynamodb.AttributeType.NUMBER : dynamodb.AttributeType.STRING };
}
